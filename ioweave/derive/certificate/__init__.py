"""Certificates of streaming: a plan written down so that it can be checked without the prover.

`write` asks the prover and writes; `verify` parses the source again, looks at the plan's boxes and runs
them on numbers. What `verify` imports proves nothing (tests hold it to that).
"""
