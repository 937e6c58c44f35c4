"""The wire: federation.proto and what generate.sh makes of it."""
