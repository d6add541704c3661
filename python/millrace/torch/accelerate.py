def accelerate(m): pass
class Accelerated: pass
