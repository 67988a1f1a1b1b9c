"""Figures: a panel's lines become columns, columns become layout numbers, numbers become primitives."""
