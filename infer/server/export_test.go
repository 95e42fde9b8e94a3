package server

import "github.com/vedette/vedette/infer/tensor"

// Pool is what every copy of a tensor takes its memory from.
func (s *Server) Pool() *tensor.Pool { return &s.pool }

// Idle is a look at what is in use, for a number of requests answered so far, and what is in use.
func Idle() (look func(requests uint64), heap func() uint64) { return new(idle).look, heapInUse }
