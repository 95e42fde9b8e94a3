package server

import "github.com/vedette/vedette/infer/tensor"

// Pool is what every copy of a tensor takes its memory from.
func (s *Server) Pool() *tensor.Pool { return &s.pool }
