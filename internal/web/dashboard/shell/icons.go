package shell

import "html/template"

// icon is a picture beside a word that says the same: a symbol of assets/icons.svg, drawn on a grid of 16
// in the text's color. Symbols of a shared file keep pages small.
func (d *Shell) icon(name string) template.HTML {
	return template.HTML(`<svg class="icon" aria-hidden="true"><use href="` + d.Assets.URL("icons.svg") + "#" + template.HTMLEscapeString(name) + `"/></svg>`)
}
