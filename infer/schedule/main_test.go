package schedule

import (
	"context"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testContext() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}
