package remote

import (
	"testing"
	"time"

	"github.com/vedette/vedette/infer/backend"
)

func TestARetryGoesWhereTheRequestHasNotBeen(t *testing.T) {
	dead, alive := new(server), new(server)
	in := &instance{servers: []*server{dead, alive}}
	now := time.Now()
	pick := func(tried ...*server) *server {
		s, _ := in.pick(new(backend.Job), now, tried)
		return s
	}
	for range 3 { // whatever others did meanwhile
		pick()
		if pick(dead) != alive || pick(alive) != dead {
			t.Error("the server that failed is asked again")
		}
	}
	dead.heard(now, false)
	for range 3 {
		if pick() != alive {
			t.Error("a server that rests is asked while another one does not")
		}
	}
	alive.checked(now, false, time.Second) // it was only slow
	for range 3 {
		pick()
		if pick(dead) != alive {
			t.Error("the server that failed is asked again, because another one rests too")
		}
	}
	if s := pick(dead, alive); s != dead && s != alive {
		t.Error("nobody is asked")
	}
}
