"""Changes of a diagram that would let an axis stream: proposed by the shape of what stops it, kept if proved."""
