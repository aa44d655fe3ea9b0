"""One scenario a file: it sets up, measures, prints its tables and puts its keys into the report."""
