-- +goose Up

-- Written by package gc: which blobs sweeps delete, and have deleted of late. Who puts a
-- blob looks here afterwards.
CREATE TABLE blob_deletions (
  digest    TEXT NOT NULL,
  sweeper   TEXT NOT NULL,
  at        BIGINT NOT NULL,   -- when it began, or ended
  under_way BOOLEAN NOT NULL,
  PRIMARY KEY (digest, sweeper)
);
CREATE INDEX blob_deletions_at ON blob_deletions (at);

-- Written by package hold: releases that a running deployment builds on or has made, and
-- that no deployment's row may refer to yet. They are roots of garbage collection until then.
CREATE TABLE release_holds (
  release TEXT PRIMARY KEY,
  until   BIGINT NOT NULL
);
