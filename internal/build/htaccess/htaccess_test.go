package htaccess

import (
	"strings"
	"testing"
)

// .htaccess files of WordPress plugins close what they close on Apache.
func TestHides(t *testing.T) {
	t.Parallel()
	const edd = `Options -Indexes
deny from all
<FilesMatch '\.(jpg|jpeg|png|gif|mp3|ogg|webp)$'>
	Order Allow,Deny
	Allow from all
</FilesMatch>`
	const both = `<IfModule mod_authz_core.c>
	Require all denied
</IfModule>
<IfModule !mod_authz_core.c>
	Order deny,allow
	Deny from all
</IfModule>
`
	const backwpup = `<Files "*">
<IfModule mod_access.c>
Deny from all
</IfModule>
<IfModule !mod_access_compat>
<IfModule mod_authz_host.c>
Deny from all
</IfModule>
</IfModule>
<IfModule mod_access_compat>
Deny from all
</IfModule>
</Files>`
	const akismet = both + `<FilesMatch "^(form\.js|akismet(-frontend)?\.js|akismet\.css)$">
<IfModule mod_authz_core.c>
Require all granted
</IfModule>
<IfModule !mod_authz_core.c>
Allow from all
</IfModule>
</FilesMatch>`
	const one = "<Files wp-config.txt>\nRequire all denied\n</Files>\n<Files ~ \"\\.lo?g$\">\nDeny from all\n</Files>"
	const rules = "RewriteEngine On\nRewriteRule ^private/ - [F,L]\nRewriteCond %{HTTP_COOKIE} !member\nRewriteRule .* - [F]"
	const odd = "<FilesMatch \"(?!a)b\">\nDeny from all\n</FilesMatch>"
	const others = "<LimitExcept GET>\nDeny from all\n</LimitExcept>\n<IfModule !mod_x.c>\nDeny from all\n</IfModule>\n</Files>"
	for name, tt := range map[string]struct {
		files        map[string]string // folder → content
		closed, open string
	}{
		"deny":               {map[string]string{"up/a": "deny from all"}, "up/a/x.pdf up/a/b/c/x.png up/a/index.html", "up/x.pdf up/ab/x.pdf"},
		"in capitals":        {map[string]string{"up/a": "Order Deny,Allow\r\nDENY FROM ALL\r\n"}, "up/a/x.pdf", ""},
		"for two versions":   {map[string]string{"up/a": both}, "up/a/x.pdf", ""},
		"require":            {map[string]string{"up/a": "<RequireAll>\nRequire all denied\n</RequireAll>"}, "up/a/x.pdf", ""},
		"for members":        {map[string]string{"up/a": "AuthType Basic\nRequire valid-user"}, "up/a/x.pdf", ""},
		"for one address":    {map[string]string{"up/a": "order deny,allow\ndeny from all\nallow from 192.0.2.1"}, "up/a/x.pdf", ""},
		"but pictures":       {map[string]string{"up/edd": edd}, "up/edd/2026/11/x.zip up/edd/x.png.zip", "up/edd/2026/11/x.png"},
		"each file":          {map[string]string{"up/a": backwpup}, "up/a/x.zip up/a/b/x", ""},
		"but some":           {map[string]string{"p/akismet": akismet}, "p/akismet/a.php p/akismet/x.js", "p/akismet/_inc/form.js p/akismet/akismet.css"},
		"inner goes before":  {map[string]string{"up": "Deny from all", "up/a": "Order deny,allow\nAllow from all"}, "up/x up/b/x", "up/a/x up/a/b/x"},
		"inner says nothing": {map[string]string{"up": "Deny from all", "up/a": "Options -Indexes"}, "up/a/x", ""},
		"only scripts":       {map[string]string{"up": "<FilesMatch \"\\.(php|phtml)$\">\nDeny from all\n</FilesMatch>"}, "up/x.php", "up/x.png"},
		"one file":           {map[string]string{"up": one}, "up/wp-config.txt up/a.lg", "up/x.txt up/wp-configxtxt"},
		"allow goes first":   {map[string]string{"up": "Order Allow,Deny\nAllow from all\nDeny from all", "p": "Order allow,deny"}, "up/x p/x", ""},
		"deny goes first":    {map[string]string{"up": "Order Deny,Allow\nDeny from all\nAllow from all"}, "", "up/x"},
		"both kinds count":   {map[string]string{"up": "Require all denied", "up/a": "Order deny,allow\nAllow from all"}, "up/a/x", ""},
		"granted":            {map[string]string{"up": "Require all granted\nOptions -Indexes"}, "", "up/x"},
		"a rule forbids":     {map[string]string{"up": rules}, "up/private/x", "up/x"},
		"not understood":     {map[string]string{"up": odd, "p": strings.Replace("Deny from all\n"+odd, "\nDeny", "\nAllow", 1)}, "up/b p/x p/b", "up/x"},
		"too long":           {map[string]string{"up": strings.Repeat("# a comment\n", 6000)}, "up/x", ""},
		"too many":           {map[string]string{"up": strings.Repeat("<Files a>\n</Files>\n", 300)}, "up/x", ""},
		"other sections":     {map[string]string{"up": others}, "", "up/x"},
		"a rule in quotes":   {map[string]string{"up": "RewriteRule \"\\.txt$\" - [F]", "p": "RewriteRule \"a b\" \"-\" [R=404,L]"}, "up/x.txt", "up/x.png p/ab"},
		"any case":           {map[string]string{"up": "RewriteRule \\.TXT$ - [F,NC]"}, "up/x.txt", "up/x.png"},
		"all but one":        {map[string]string{"up": "RewriteRule !^index\\.php$ - [F]"}, "up/x.txt", ""},
		"a status":           {map[string]string{"up": "RedirectMatch 403 \\.txt$", "p": "Redirect 410 /p/old"}, "up/a/x.txt p/old/x p/old", "up/x.png p/older"},
		"a tab":              {map[string]string{"up": "<Files\t\"a.txt\">\nRequire all denied\n</Files>"}, "up/a.txt", "up/b.txt"},
		"a mark of bytes":    {map[string]string{"up": "\ufeffDeny from all"}, "up/a.txt", ""},
		"a condition":        {map[string]string{"up": "<If \"true\">\nRequire all denied\n</If>"}, "up/a.txt", ""},
		"large patterns":     {map[string]string{"up": "RewriteRule .{1000} - [F]", "p": strings.Repeat("RewriteRule "+strings.Repeat("a", 500)+" - [F]\n", 9)}, "up/x p/x", ""},
		"a comment":          {map[string]string{"up": "# Deny from all\nIndexIgnore *"}, "", "up/x"},
		"none":               {nil, "", "up/a/x x"},
	} {
		of := func(folder string) *Rules {
			if text, ok := tt.files[folder]; ok {
				return Parse(text)
			}
			return nil
		}
		for file := range strings.FieldsSeq(tt.closed) {
			if !Hides("", file, of) {
				t.Errorf("%s: %s is open", name, file)
			}
		}
		for file := range strings.FieldsSeq(tt.open) {
			if Hides("", file, of) {
				t.Errorf("%s: %s is closed", name, file)
			}
		}
	}
}
