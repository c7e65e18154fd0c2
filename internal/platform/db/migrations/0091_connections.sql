-- +goose Up

-- Written by package connection: accounts at Git forges that users have connected.
CREATE TABLE connections (
  id         TEXT PRIMARY KEY,
  owner_id   TEXT NOT NULL,
  provider   TEXT NOT NULL,      -- github, gitlab, gitea, bitbucket
  host       TEXT NOT NULL,      -- of the forge's web pages and repositories
  login      TEXT NOT NULL,      -- as the forge calls the account
  token      TEXT NOT NULL,      -- sealed JSON: the access token, and the user name that goes with it where one does
  error      TEXT NOT NULL,      -- why the forge last refused what was asked with it; empty: it didn't
  error_at   BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX connections_owner ON connections (owner_id, created_at);

-- Written by package connection: the account that a site's repository is read with, and
-- that its deployments are reported with.
CREATE TABLE site_connections (
  site_id       TEXT PRIMARY KEY,
  connection_id TEXT NOT NULL,
  report        BOOLEAN NOT NULL -- whether deployments are reported to the forge
);
CREATE INDEX site_connections_of ON site_connections (connection_id);

-- Written by package connection: what the forge was last told of a deployment.
CREATE TABLE forge_reports (
  deployment_id TEXT PRIMARY KEY,
  site_id       TEXT NOT NULL,
  state         TEXT NOT NULL,   -- of the deployment, as it was last told
  record        TEXT NOT NULL,   -- the forge's id of its deployment record; empty: none
  updated_at    BIGINT NOT NULL
);
CREATE INDEX forge_reports_of_site ON forge_reports (site_id, updated_at);

-- Written by package connection: the one comment on each pull request.
CREATE TABLE forge_comments (
  site_id     TEXT NOT NULL,
  pull        BIGINT NOT NULL,
  comment_id  TEXT NOT NULL,
  PRIMARY KEY (site_id, pull)
);
