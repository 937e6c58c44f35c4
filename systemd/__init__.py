"""Units and their kin for `carico install`; installed as the package carico_units."""
