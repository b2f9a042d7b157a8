-- The role of a host writes reasons, codes and the like, and everybody's lists, samples and pages hold them as a whole. How long
-- they may be is kept by the tables, whichever function writes them. What is there is not looked at again: that could take hours.

ALTER TABLE suspended ADD CONSTRAINT the_texts_of_a_suspension_are_short
    CHECK (octet_length(reason) <= 65536 AND octet_length(code) <= 1024) NOT VALID;
ALTER TABLE scheduled ADD CONSTRAINT the_reason_to_wait_is_short CHECK (octet_length(reason) <= 65536) NOT VALID;
ALTER TABLE subqueue_lease ADD CONSTRAINT the_reason_of_a_block_is_short CHECK (octet_length(reason) <= 65536) NOT VALID;
ALTER TABLE instance ADD CONSTRAINT the_texts_of_an_instance_are_short
    CHECK (greatest(octet_length(waiting_for), octet_length(line), octet_length(reason), octet_length(traceback)) <= 131072
           AND octet_length(code) <= 1024) NOT VALID;
ALTER TABLE host_instance ADD CONSTRAINT the_name_of_a_machine_is_short CHECK (octet_length(machine) <= 1024) NOT VALID;
ALTER TABLE instance_subscription ADD CONSTRAINT what_is_waited_for_is_as_large_as_a_context
    CHECK (octet_length(value::text) <= 1048576) NOT VALID;
ALTER TABLE refusal ADD CONSTRAINT labels_are_as_large_as_a_context CHECK (octet_length(labels::text) <= 1048576) NOT VALID;
ALTER TABLE track_settled ADD CONSTRAINT the_texts_of_an_event_are_short
    CHECK (octet_length(reason) <= 65536 AND octet_length(code) <= 1024) NOT VALID;
