-- +goose Up

-- Written by package node: the directory that holds the storage of all sites and that every node mounts. No row: each node
-- has storage of its own.
CREATE TABLE storage_marks (
  id     BIGINT PRIMARY KEY,        -- always 1
  mark   TEXT NOT NULL,             -- what the directory's file .slipway-storage holds
  placed BOOLEAN NOT NULL           -- the file has been written: a directory without it is another one, or is not mounted
);

ALTER TABLE nodes ADD COLUMN storage TEXT NOT NULL DEFAULT ''; -- the mark of its storage; empty: in its data directory

-- stores says that the site writes to a directory that all nodes mount: it moves once nothing on its node can write any more.
ALTER TABLE placements ADD COLUMN stores BOOLEAN NOT NULL DEFAULT FALSE;
