package lab

import (
	"context"
	"errors"
)

func (a *agent) startServer(ctx context.Context) error            { return nil }
func (a *agent) measure(ctx context.Context) (*CaseResult, error) { return nil, errors.New("not yet") }
