"""The data plane: one worker that authenticates, routes, streams and accounts for every request.

`client_connection` and `upstream` are the two sides of the byte path, `exchange` is the request between them,
`routing_table` is what the last fleet snapshot means here, and `worker` is the process.
"""
