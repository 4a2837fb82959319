"""`pilothouse ...`: the commands, the supervisor, and the mains that compose the other rooms into processes.

Standard output carries data (what a script would read), standard error carries messages. Commands import what they
need when they run, so that the light ones start fast.
"""
