-- Whoever is given a message has its small parts, the names of all parts, and one fragment at a time in memory. How large these
-- may be is kept by the tables, whichever function writes them. What is there is not looked at again: that could take hours.

ALTER TABLE part
    ADD CONSTRAINT a_part_is_as_large_as_it_says CHECK (size = octet_length(body) AND octet_length(body) <= 1048576) NOT VALID,
    ADD CONSTRAINT the_name_of_a_part_is_short CHECK (octet_length(name) <= 1024) NOT VALID;
ALTER TABLE fragment ADD CONSTRAINT a_fragment_is_held_at_once CHECK (octet_length(body) <= 1048576) NOT VALID;

-- The role of a host says when a delivery is due. A time that Python has not would fail whoever asks what waits.
ALTER TABLE scheduled
    ADD CONSTRAINT deliveries_are_due_in_our_time CHECK (due_at BETWEEN '1970-01-01Z' AND '9999-01-01Z') NOT VALID;
ALTER TABLE subqueue_lease ADD CONSTRAINT ports_are_blocked_in_our_time
    CHECK (blocked_by IS NOT NULL OR blocked_until BETWEEN '1970-01-01Z' AND '9999-01-01Z') NOT VALID;
