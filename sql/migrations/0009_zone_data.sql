-- Which time zone data the plans stand on. A node with older data than a leader ever had does not
-- lead; one with newer data plans anew what was planned with other data, then says so here.

ALTER TABLE cronstream.coordinator_epoch
    ADD COLUMN tzdata text,            -- the newest that a leader had
    ADD COLUMN tzdata_planned text;    -- the newest with which every plan was made
