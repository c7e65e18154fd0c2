-- +goose Up

-- The edge's contract for custom hosts. certified_until is until when the domain is known
-- to have a certificate, 0 where it has none.
DROP VIEW custom_hosts;
CREATE VIEW custom_hosts AS
  SELECT r.host, r.site_id, r.redirect_to, r.state, r.version,
         COALESCE(CASE WHEN d.ssl_status = 'active' THEN d.cert_expires_at END, 0) AS certified_until
  FROM domain_routes r LEFT JOIN domains d ON d.name = r.host AND d.proven_at <> 0;
