-- +goose Up

-- Written by package figures: figures of a site's programs, by the minute and by the hour.
-- b0 to b15 count answers by how long their first byte took; see latencies in metrics.go.
CREATE TABLE app_metrics (
  site_id  TEXT NOT NULL,
  step     BIGINT NOT NULL,        -- milliseconds: a minute or an hour
  at       BIGINT NOT NULL,
  s2 BIGINT NOT NULL, s3 BIGINT NOT NULL, s4 BIGINT NOT NULL, s5 BIGINT NOT NULL,
  wakes    BIGINT NOT NULL,
  restarts BIGINT NOT NULL,
  memory   BIGINT NOT NULL,        -- the most that was seen, bytes
  cpu      BIGINT NOT NULL,        -- milliseconds
  b0 BIGINT NOT NULL, b1 BIGINT NOT NULL, b2 BIGINT NOT NULL, b3 BIGINT NOT NULL, b4 BIGINT NOT NULL, b5 BIGINT NOT NULL, b6 BIGINT NOT NULL, b7 BIGINT NOT NULL,
  b8 BIGINT NOT NULL, b9 BIGINT NOT NULL, b10 BIGINT NOT NULL, b11 BIGINT NOT NULL, b12 BIGINT NOT NULL, b13 BIGINT NOT NULL, b14 BIGINT NOT NULL, b15 BIGINT NOT NULL,
  PRIMARY KEY (site_id, step, at)
);
CREATE INDEX app_metrics_age ON app_metrics (step, at);
