package contract

import (
	"encoding/json"

	"slipway/internal/tenant/operation"
)

type OperationBody struct {
	ID          operation.ID    `json:"id" example:"op_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Kind        string          `json:"kind" example:"webhook.redeliver"`
	SiteID      *string         `json:"siteId" doc:"Null if the operation is about no site, or several."`
	Status      string          `json:"status" enum:"pending,running,success,failed,canceled"`
	Progress    *float64        `json:"progress" minimum:"0" maximum:"1" doc:"Null if unknown."`
	Message     *string         `json:"message"`
	Error       *string         `json:"error" doc:"Why it failed."`
	Result      json.RawMessage `json:"result" doc:"The result, by kind. Null until it has ended."`
	CreatedAt   string          `json:"createdAt" format:"date-time"`
	CompletedAt *string         `json:"completedAt" format:"date-time"`
}

func ShowOperation(o operation.Operation) OperationBody {
	b := OperationBody{
		ID:          o.ID,
		Kind:        o.Kind,
		SiteID:      Some(string(o.Site)),
		Status:      string(o.Status),
		Message:     Some(o.Message),
		Error:       Some(o.Error),
		Result:      o.Result,
		CreatedAt:   o.CreatedAt.String(),
		CompletedAt: When(o.CompletedAt),
	}
	if o.Progress >= 0 {
		b.Progress = &o.Progress
	}
	return b
}
