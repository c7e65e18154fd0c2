package shell

import "html/template"

// icon returns a decorative 16 × 16 symbol of assets/icons.svg in the text's color. The shared file keeps pages small.
func (d *Shell) icon(name string) template.HTML {
	return template.HTML(`<svg class="icon" aria-hidden="true"><use href="` + d.Assets.URL("icons.svg") + "#" + template.HTMLEscapeString(name) + `"/></svg>`)
}
