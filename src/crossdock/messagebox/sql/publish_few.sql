-- A few messages, all of which go to queues, with everything that publishing writes. Its own transaction.
SELECT publish_few(%(message)s::uuid[], %(context)s::json[], %(part_of)s::uuid[], %(part)s::uuid[], %(name)s::text[],
                   %(body)s::bytea[], %(host)s::smallint[], %(line)s::integer[], %(priority)s::smallint[],
                   %(reference)s::uuid[], %(subscription)s::bigint[], %(service)s::integer[], %(lock)s, %(epoch)s,
                   %(location_epoch)s);
