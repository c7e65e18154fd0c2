-- +goose Up

-- Written by package deploy: how often work on the deployment began without coming to an
-- end that this service wrote. What kills the process counts, a restart in order does not.
ALTER TABLE deployments ADD COLUMN crashes BIGINT NOT NULL DEFAULT 0;
