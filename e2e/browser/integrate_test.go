//go:build browser

package browser

import (
	"context"
	"net/http"
	"strings"

	"slipway/e2e/world"
)

func (s *story) apiKey() {
	s.step("a key, used with curl as the pages show it, and revoked")
	s.Go("/account/keys")
	s.Look("keys-empty")
	s.Press("@empty a.primary")
	s.Type("#f-name", "CI of acme/harbor")
	s.Click(`input[value="sites:read"]`)
	s.Click(`input[value="deployments:write"]`)
	s.Look("key-new")
	s.Press("@submit")
	key := s.Text("@value")
	if got := s.Copied(".once .copy"); got != key {
		s.t.Errorf("copied is %q, shown is %q", got, key)
	}
	s.Look("key-made")
	var list struct{ Data []struct{ Name string } }
	s.asked(s.Copied("@try .copy"), key, &list)
	s.Go("/account/keys")
	s.hides(key)
	s.Look("keys")

	s.Go("/")
	s.Click("@calls")
	list.Data = nil
	s.asked(s.Copied("@rest .copy"), key, &list)
	if len(list.Data) != 1 || list.Data[0].Name != "harbor" {
		s.t.Errorf("the shown command lists %+v", list.Data)
	}
	// The command that a page shows for its own action performs that action.
	s.Go(s.site)
	s.Click("@calls")
	var made struct{ DeploymentID string }
	s.asked(s.Copied("@rest + @rest .copy"), key, &made)
	s.Go(s.site + "/deployments/" + made.DeploymentID)
	s.Sees("@deployment", "By API")
	s.Sees("@deployment @status-success")

	s.Go("/account/keys")
	s.Click("@open-revoke-*")
	s.Look("key-revoke")
	command := `curl http://` + s.Listen + `/api/v1/sites -H "Authorization: Bearer $SLIPWAY_KEY"`
	if status, body := s.curl(command, key); status != http.StatusOK {
		s.t.Errorf("before it is revoked the key gets %d: %s", status, body)
	}
	s.Press("@do-revoke-*")
	s.Sees("@empty")
	if status, body := s.curl(command, key); status != http.StatusUnauthorized {
		s.t.Errorf("a revoked key gets %d: %s", status, body)
	}
}

func (s *story) webhook() {
	s.step("a webhook whose deliveries carry its secret's signature")
	s.Go("/webhooks")
	s.Look("webhooks-empty")
	s.Press("@empty a.primary")
	s.Look("webhook-new")
	s.Type("#f-url", s.Hooks.URL+"/ship")
	s.Press("@create-webhook")
	s.Sees("@secret-shown")
	secret := s.Copied("@secret-shown .copy")
	s.Look("webhook-made")
	s.Press("@ping")
	s.hides(secret)
	s.stays(func() {
		s.Sees("@deliveries", "Delivered")
		s.Click("@deliveries li:first-child summary")
		s.Sees("@deliveries", "HTTP 200", "thanks")
	})
	s.Look("webhook-delivered")
	webhook := s.Path()
	s.Press("@deliveries @delivery-*")
	s.Sees("main", "ping", "HTTP 200", "thanks", `"event": "ping"`)
	s.Look("delivery")
	s.Go(s.site)
	s.deployed("@deploy")
	ctx, stop := context.WithTimeout(s.t.Context(), patience)
	defer stop()
	got, err := s.Hooks.Wait(ctx, 2, func(d world.Delivery) bool { return d.Path == "/ship" })
	if err != nil {
		s.t.Fatal(err)
	}
	for _, d := range got {
		if d.Header.Get("X-Service-Signature") != world.Signature(secret, d.Body) {
			s.t.Errorf("the signature of %s is not the shown secret's", d.Event)
		}
	}
	if got[1].Event != "deployment.completed" {
		s.t.Errorf("a deployment is told as %q", got[1].Event)
	}
	s.Go(webhook)
	s.Sees("@deliveries li:first-child", "deployment.completed", "Delivered")
	s.Go("/webhooks")
	s.Look("webhooks")
}

func (s *story) deployHook() {
	s.step("a deploy hook, called, given a new address, turned off")
	s.Go(s.site + "/hooks")
	s.Look("hooks-empty")
	s.Type("#f-name", "CMS")
	s.Press("@create-hook")
	command := s.Copied("@hook .code .copy")
	s.Look("hooks")
	before := s.Text("@hook @value")
	s.Go(s.site + "/deployments")
	s.stays(func() {
		if status, body := s.curl(command, ""); status/100 != 2 {
			s.t.Fatalf("the hook answers %d: %s", status, body)
		}
		s.Sees("@deployments .dep:first-child", "By deploy hook")
		s.Sees("@deployments .dep:first-child @status-success")
	})
	s.Go(s.site + "/hooks")
	s.Sees("@hook", "Called 1 time")
	s.Click("@open-rotate-0")
	s.Press("@do-rotate-0")
	s.Sees("@flash")
	if after := s.Text("@hook @value"); after == before {
		s.t.Error("the webhook's URL has not changed")
	}
	refuses := func(command, what string) {
		s.t.Helper()
		if status, body := s.curl(command, ""); status != http.StatusNotFound && status != http.StatusGone {
			s.t.Errorf("%s answers %d: %s", what, status, body)
		}
	}
	refuses(command, "the old address")
	command = s.Copied("@hook .code .copy")
	s.Press("@switch-hook")
	s.Sees("@hook @status-off")
	refuses(command, "a hook that is turned off")
	s.Press("@switch-hook")
	if status, body := s.curl(command, ""); status/100 != 2 {
		s.t.Errorf("turned on again it answers %d: %s", status, body)
	}
	s.Go(s.site + "/deployments")
	s.Sees("@deployments .dep:first-child", "By deploy hook")
	s.Until(
		"the hooks' deployments don't end",
		`document.querySelectorAll('.dep .status.ok').length === document.querySelectorAll('.dep').length`,
	)
	if !strings.Contains(command, s.Listen) {
		s.t.Errorf("the command goes elsewhere: %s", command)
	}
}
