"""The local stack: installs what is missing and runs the real servers natively.

Standard library only, because it runs before the virtual environment exists.

    python3.11 -m stack install      what is missing, nothing twice
    python3.11 -m stack up           Postgres, etcd, Kafka and Connect on free ports
    python3.11 -m stack down         leaves nothing running

From code (tests, the demo):

    home = Home(Path(".local/tests"))
    servers.up(home)
    servers.kill(home, "postgres")       # a fault
    servers.start(home, "postgres")      # same port, same data
    services.up(home)                    # the product's own processes
    services.down(home)
    servers.down(home, wipe=True)
"""
