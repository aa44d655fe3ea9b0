-- Run once by the postgres image on an empty data folder: roles.sql with the password of the secret.
\set password `cat /run/secrets/postgres_password`
\ir /etc/cronstream/roles.sql
