-- +goose Up

-- The next job that may run is found in the order of its turn, whoever's jobs wait before it, without reading these.
CREATE INDEX jobs_next ON jobs (queue, run_at, id, share, kind, node) WHERE state = 'ready';
DROP INDEX jobs_due;
