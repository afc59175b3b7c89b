def encode(m): return m
def decode(m): return m
