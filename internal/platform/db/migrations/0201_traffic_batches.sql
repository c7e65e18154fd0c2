-- +goose Up

-- Written by package traffic. The last batch that was added of those that a process hands
-- over: one that is offered again, because the answer to its commit was lost, is not added
-- again.
CREATE TABLE traffic_batches (
  counter TEXT PRIMARY KEY,  -- one process
  number  BIGINT NOT NULL,   -- its batches have rising numbers
  at      BIGINT NOT NULL    -- when it was added
);
CREATE INDEX traffic_batches_at ON traffic_batches (at);
