"""The napkin formula (closed form of the least transfer) and lower bounds that no schedule can beat."""
