//go:build browser

package browser

import "net/http"

func (s *story) account() {
	s.step("sign out and in; sessions; colors")
	s.Go("/account")
	s.Look("account")
	s.Click("details.menu summary")
	s.Look("menu")
	s.Click(`.menu-panel button[value="dark"]`)
	s.Sees(`html[data-theme="dark"]`)
	s.Until("the colors are not kept", `fetch('/account').then((r) => r.text()).then((page) => page.includes('data-theme="dark"'))`)
	s.Go("/account/sessions")
	s.Sees(`html[data-theme="dark"]`)
	s.Click("details.menu summary")
	s.Click(`.menu-panel button[value="system"]`)
	s.Press("@sign-out")
	s.Sees("@flash", "Signed out")
	s.Go("/account")
	s.Sees("#f-email")
	s.Look("sign-in")
	s.Type("#f-email", email)
	s.Type("#f-password", "not my password at all")
	s.Expect(http.StatusUnauthorized)
	s.Press("@submit")
	s.Sees("@wrong-password")
	s.Look("sign-in-wrong")
	s.Type("#f-password", password)
	s.Press("@submit")
	if at := s.Path(); at != "/account" {
		s.t.Errorf("after signing in one is at %s", at)
	}

	other := s.window()
	other.Go("/sign-in")
	other.Type("#f-email", email)
	other.Type("#f-password", password)
	other.Press("@submit")
	other.Sees("@cards")
	s.Go("/account/sessions")
	s.Look("sessions")
	s.Press("@session-*:not(:has(.tag)) button")
	s.Sees("@flash")
	other.Go("/account")
	other.Sees("#f-password")
	s.Go("/account")
	s.Sees("main", email)
}

// restOfThePages visits the pages on which this story does nothing else.
func (s *story) restOfThePages() {
	s.step("the other pages")
	for _, p := range [][2]string{
		{"/", "home"},
		{"/?q=nothing", "home-no-match"},
		{"/new?type=wordpress", "new-wordpress"},
		{s.site + "/deployments?page=2", "deployments-past"},
		{s.site + "/git", "git"},
		{"/account/git", "git-accounts"},
		{"/account/notifications", "notifications"},
		{"/account/security", "security"},
		{"/account/second-factor", "second-factor"},
		{"/account/audit", "audit"},
		{"/operator", "operator"},
	} {
		s.Go(p[0])
		s.Look(p[1])
	}
	s.Expect(http.StatusNotFound)
	s.Go("/nowhere")
	s.Look("nowhere")
}
