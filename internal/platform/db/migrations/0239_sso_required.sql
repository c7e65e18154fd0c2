-- +goose Up

-- Which providers are a team's, and who has an account there that signs them in.
CREATE VIEW team_providers AS SELECT id, owner_id FROM sso_providers WHERE owner_id <> '';
CREATE VIEW team_identities AS
  SELECT owner_id, user_id, MAX(used_at) AS used_at FROM sso_identities WHERE owner_id <> '' GROUP BY owner_id, user_id;

-- Written by package account: the providers that the holder of a session has signed in with after it began.
CREATE TABLE session_providers (
  session_id  TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
  provider_id TEXT NOT NULL,
  PRIMARY KEY (session_id, provider_id)
);
CREATE INDEX session_providers_provider ON session_providers (provider_id);

-- Written by package account: sessions of emergency owners that entered a team without its provider.
CREATE TABLE break_glass_uses (
  session_id  TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
  owner_id    TEXT NOT NULL,
  used_at     BIGINT NOT NULL,
  PRIMARY KEY (session_id, owner_id)
);

-- As before, with what a team that requires single sign-on asks of its members.
DROP VIEW memberships;
CREATE VIEW memberships AS
  SELECT id AS user_id, owner_id, '' AS team_id, '' AS slug, 'owner' AS role, '' AS sites, FALSE AS blocked,
         suspended_at, created_at AS joined_at, FALSE AS sso_required, FALSE AS sso_linked, FALSE AS break_glass
  FROM users
  UNION ALL
  SELECT m.user_id, m.owner_id, t.id, t.slug, m.role,
         COALESCE((SELECT string_agg(s.site_id || ':' || s.role, ' ' ORDER BY s.site_id)
                   FROM site_members s WHERE s.owner_id = m.owner_id AND s.user_id = m.user_id), ''),
         t.require_2fa AND NOT EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = m.user_id AND f.confirmed)
                       AND NOT EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = m.user_id),
         t.suspended_at, m.joined_at, t.require_sso,
         EXISTS (SELECT 1 FROM team_identities i WHERE i.owner_id = m.owner_id AND i.user_id = m.user_id),
         m.break_glass AND m.role = 'owner'
           AND (EXISTS (SELECT 1 FROM second_factors f WHERE f.user_id = m.user_id AND f.confirmed)
                OR EXISTS (SELECT 1 FROM passkeys p WHERE p.user_id = m.user_id))
  FROM team_members m JOIN teams t ON t.owner_id = m.owner_id
  WHERE t.deleted_at = 0;
