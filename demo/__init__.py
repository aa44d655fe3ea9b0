"""``make demo``: the whole product on real servers for a minute, and an audit of what it did.

| file | says |
| --- | --- |
| fleet | the jobs: the real fleet, and those that fire every 1 to 20 seconds |
| receiver | the process that those jobs call, and its log of calls |
| timeline | this machine's boot clock in terms of the database's clock |
| oracle | what should have fired, computed from definitions, the edit and the clock alone |
| watch | figures of the running processes |
| show | the live table, or plain lines where there is no terminal |
| forecast | triggers per minute of the real fleet over the next day, as text and PNG |
| events | the edit and the crash, and the first calls that show their effect |
| audit | calls and history against the oracle, and the last line |
| story | the acts in order |
"""
