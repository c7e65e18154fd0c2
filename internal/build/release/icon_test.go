package release

import (
	"strings"
	"testing"
)

func TestIcon(t *testing.T) {
	t.Parallel()
	const png, ico, svg = "\x89PNG\r\n\x1a\nx", "\x00\x00\x01\x00x", "<?xml version='1.0'?>\n<!-- made --> <svg xmlns='x'></svg>"
	for name, c := range map[string]struct {
		page           string
		files          map[string]string
		body, mimeType string
	}{
		"none":               {"<title>x</title>", nil, "", ""},
		"the usual path":     {"", map[string]string{"favicon.ico": ico}, ico, "image/x-icon"},
		"the page's link":    {`<LINK REL="icon" type=x href="/a%20b.svg?v=1&amp;w=2">`, map[string]string{"a b.svg": svg, "favicon.ico": ico}, svg, "image/svg+xml"},
		"no quotes":          {`<link href=i.png rel=icon>`, map[string]string{"i.png": png}, png, "image/png"},
		"a shortcut icon":    {`<link rel='shortcut icon' href='./i.png'>`, map[string]string{"i.png": png}, png, "image/png"},
		"another link":       {`<link rel="mask-icon" href="/i.png">`, map[string]string{"i.png": png}, "", ""},
		"on another host":    {`<link rel=icon href="//x.test/i.png">`, map[string]string{"i.png": png}, "", ""},
		"above the root":     {`<link rel=icon href="../../i.png">`, map[string]string{"i.png": png}, png, "image/png"},
		"a page as its icon": {`<link rel=icon href="/p.html">`, map[string]string{"p.html": "<script>alert(1)</script><svg></svg>"}, "", ""},
		"an entity in it":    {"", map[string]string{"favicon.svg": `<!DOCTYPE svg [<!ENTITY x "y">]><svg></svg>`}, "", ""},
		"too large":          {"", map[string]string{"favicon.ico": ico + strings.Repeat("x", maxIcon)}, "", ""},
	} {
		files := map[string]string{"index.html": c.page}
		for at, text := range c.files {
			files[at] = text
		}
		r := open(t)
		rel := publish(t, r, "", files)
		body, mimeType, err := r.Icon(t.Context(), rel.ID)
		if err != nil || string(body) != c.body || mimeType != c.mimeType {
			t.Errorf("%s: %q, %s, %v", name, body, mimeType, err)
		}
	}
}
