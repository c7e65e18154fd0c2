package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// verificationTime is the default wait for a domain, since DNS changes take a while to spread.
const verificationTime = time.Hour

// checkEvery is the interval of requesting an immediate check. The server's own checks become less frequent.
const checkEvery = time.Minute

func domainVerification() kind {
	shownOf := func(d values) values {
		if d == nil {
			return nil
		}
		return values{"domainId": d["id"], "status": d["status"], "sslStatus": d["sslStatus"]}
	}
	find := func(ctx context.Context, c *client, id string) (values, error) {
		d, err := c.find(ctx, "/domains", id, "id", "name")
		return shownOf(d), err
	}
	return kind{
		name: "domain_verification",
		about: "Waits until a domain is active and has its certificate. Create the domain's records before it. " +
			"Deleting the resource changes nothing on the server.",
		attributes: map[string]schema.Attribute{
			"domain_id":       str(fixed, "The domain."),
			"timeout_seconds": whole(optional, "How long to wait, in seconds. Default: 3600."),
			"status":          str(live, "pending, active or failed."),
			"ssl_status":      str(live, "pending, active, failed or expired."),
		},
		local: []string{"timeout_seconds"},
		known: domain().known,
		read: func(ctx context.Context, c *client, v values) (values, error) {
			d, err := c.find(ctx, "/domains", text(v["domain_id"]), "id")
			return shownOf(d), err
		},
		find: find,
		create: func(ctx context.Context, c *client, plan, _ values) (values, error) {
			most := verificationTime
			if n, ok := plan["timeout_seconds"].(json.Number); ok {
				if s, err := n.Int64(); err == nil {
					most = time.Duration(s) * time.Second
				}
			}
			d, err := verified(ctx, c, text(plan["domain_id"]), most)
			return shownOf(d), err
		},
		destroy: func(context.Context, *client, values) error { return nil },
	}
}

// verified waits until a domain is active and has its certificate.
func verified(ctx context.Context, c *client, id string, most time.Duration) (values, error) {
	end := time.Now().Add(most)
	var check time.Time
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		var d values
		var err error
		if now := time.Now(); now.After(check) {
			check = now.Add(checkEvery)
			d, err = c.change(ctx, http.MethodPost, "/domains/"+escape(id)+"/verify", nil)
		} else {
			d, err = c.get(ctx, "/domains/"+escape(id))
		}
		if err != nil {
			return nil, err
		}
		if d["status"] == "active" && d["sslStatus"] == "active" {
			return d, nil
		}
		left := time.Until(end)
		if left <= 0 {
			why := ""
			if reason := text(d["statusReason"]); reason != "" {
				why = ": " + reason
			}
			return nil, fmt.Errorf("after %s the domain %s is %s and its certificate %s%s", most, text(d["name"]), text(d["status"]), text(d["sslStatus"]), why)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(pause, left)):
		}
	}
}
