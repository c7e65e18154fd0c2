-- +goose Up

-- Written by package team: teams, which own sites together. A deleted team's row keeps its slug reserved.
CREATE TABLE teams (
  id          TEXT PRIMARY KEY,
  owner_id    TEXT NOT NULL UNIQUE,         -- what its sites, domains, webhooks and keys belong to
  name        TEXT NOT NULL,
  slug        TEXT NOT NULL UNIQUE,         -- lower case
  require_2fa BOOLEAN NOT NULL,             -- members without a second factor are blocked
  require_sso BOOLEAN NOT NULL,
  apps        TEXT NOT NULL,                -- all, approved or none
  created_at  BIGINT NOT NULL,
  suspended_at BIGINT NOT NULL,             -- 0: not
  deleting_at BIGINT NOT NULL,              -- since when its sites are being deleted with it; 0: not
  deleted_at  BIGINT NOT NULL               -- 0: exists
);

-- Written by package team: who belongs to a team. A guest has no role, and sees the sites of site_members alone.
CREATE TABLE team_members (
  owner_id    TEXT NOT NULL REFERENCES teams (owner_id),
  user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  role        TEXT NOT NULL,                -- owner, admin, developer, contributor, viewer, billing; empty: guest
  break_glass BOOLEAN NOT NULL,
  joined_at   BIGINT NOT NULL,
  invited_by  TEXT NOT NULL,                -- a user's id, or empty
  PRIMARY KEY (owner_id, user_id)
);
CREATE INDEX team_members_user ON team_members (user_id);

-- Written by package team: roles on single sites, beside the role in the team.
CREATE TABLE site_members (
  site_id  TEXT NOT NULL,
  user_id  TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  owner_id TEXT NOT NULL,
  role     TEXT NOT NULL,                   -- manager, developer, contributor, viewer
  PRIMARY KEY (site_id, user_id)
);
CREATE INDEX site_members_of ON site_members (owner_id, user_id);
CREATE INDEX site_members_user ON site_members (user_id);

-- Written by package team: invitations that were not accepted yet.
CREATE TABLE team_invitations (
  id         TEXT PRIMARY KEY,
  owner_id   TEXT NOT NULL,
  email      TEXT NOT NULL,                 -- normalized
  role       TEXT NOT NULL,                 -- empty: guest
  sites      TEXT NOT NULL,                 -- site:role, separated by spaces
  hash       TEXT NOT NULL UNIQUE,          -- SHA-256 of the token, hex
  invited_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  UNIQUE (owner_id, email)
);
CREATE INDEX team_invitations_end ON team_invitations (expires_at);

-- Written by package team: transfers of sites that wait for the receiver.
CREATE TABLE site_transfers (
  id         TEXT PRIMARY KEY,
  site_id    TEXT NOT NULL UNIQUE,
  from_owner TEXT NOT NULL,
  to_owner   TEXT NOT NULL,                 -- empty: whoever has the code and the address
  to_email   TEXT NOT NULL,                 -- empty: any member of to_owner who may
  hash       TEXT NOT NULL UNIQUE,          -- SHA-256 of the code, hex
  offered    TEXT NOT NULL,                 -- digest of what the sender was shown
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX site_transfers_end ON site_transfers (expires_at);

-- user: acts with its maker's role. service: outlives its maker, with its own scopes.
ALTER TABLE api_keys ADD COLUMN kind TEXT NOT NULL DEFAULT 'user';

-- What each user may do for each owner: a personal account is its user's, as owner. Rights are read from
-- here at each request.
CREATE VIEW memberships AS
  SELECT id AS user_id, owner_id, '' AS team_id, '' AS slug, 'owner' AS role, '' AS sites, FALSE AS blocked,
         suspended_at, created_at AS joined_at
  FROM users
  UNION ALL
  SELECT m.user_id, m.owner_id, t.id, t.slug, m.role,
         COALESCE((SELECT string_agg(s.site_id || ':' || s.role, ' ' ORDER BY s.site_id)
                   FROM site_members s WHERE s.owner_id = m.owner_id AND s.user_id = m.user_id), ''),
         t.require_2fa AND NOT EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = m.user_id AND f.confirmed)
                       AND NOT EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = m.user_id),
         t.suspended_at, m.joined_at
  FROM team_members m JOIN teams t ON t.owner_id = m.owner_id
  WHERE t.deleted_at = 0;

-- Whether an owner's things may be acted on, and under which name the operator's settings know them.
CREATE VIEW owner_standing AS
  SELECT owner_id, 'personal' AS kind, id, email AS name, suspended_at, suspended_why FROM users
  UNION ALL
  SELECT owner_id, 'team', id, slug, suspended_at, '' FROM teams WHERE deleted_at = 0;

-- What packages beside account may know of users.
CREATE VIEW people AS
  SELECT u.id, u.owner_id, u.email, u.suspended_at, u.created_at,
         EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = u.id AND f.confirmed)
           OR EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = u.id) AS two_factor
  FROM users u;
