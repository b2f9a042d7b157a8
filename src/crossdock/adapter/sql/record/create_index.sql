-- Old rows are found by their time. They come in its order, and then this kind of index costs next to nothing.
CREATE INDEX IF NOT EXISTS crossdock_delivery_by_time ON crossdock_delivery USING brin (delivered_at);
