package peer

import (
	"context"
	"errors"

	"unbloat/internal/measure"
)

func (d *dialer) web(context.Context) (measure.Tester, error) { return nil, errors.New("todo") }
