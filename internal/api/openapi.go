package api

import "net/http"

func (a *API) finish() {}

func (a *API) servePage(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }
