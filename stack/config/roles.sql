-- The product's role and database; run once, as superuser, one statement a line.
-- REPLICATION is for the capture's slot, CREATEDB for tests that want a database of their own.
CREATE ROLE cronstream LOGIN REPLICATION CREATEDB PASSWORD :'password';
GRANT pg_monitor TO cronstream;
CREATE DATABASE cronstream OWNER cronstream TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C';
