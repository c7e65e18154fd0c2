-- +goose Up

-- Written by package job. What kinds of jobs each running node can do. A kind that no
-- node knows waits, during an upgrade for the first node of the new version.
CREATE TABLE job_kinds (
  node        TEXT NOT NULL,
  kind        TEXT NOT NULL,
  lease_until BIGINT NOT NULL, -- the node is alive until then at least
  PRIMARY KEY (node, kind)
);
