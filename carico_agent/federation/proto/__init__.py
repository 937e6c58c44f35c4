"""The wire: federation.proto and what `make proto` makes of it."""
