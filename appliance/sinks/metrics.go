package sinks

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	vedettev1 "github.com/vedette/vedette/api/vedette/v1"
)

// What is told of each sink.
//
//nolint:gochecknoglobals // constants
var (
	deliveredDesc = prometheus.NewDesc("vedette_sink_delivered_total", "Events that the receiver has taken since the appliance started.", []string{"sink"}, nil)
	failuresDesc  = prometheus.NewDesc("vedette_sink_failures_total", "Attempts to deliver that failed since the appliance started.", []string{"sink"}, nil)
	deadDesc      = prometheus.NewDesc("vedette_sink_dead_letters", "Events that the receiver refused for good.", []string{"sink"}, nil)
	waitingDesc   = prometheus.NewDesc("vedette_sink_waiting_seconds", "Age of the oldest event that waits to be delivered; 0: none waits.", []string{"sink"}, nil)
)

// Describe implements prometheus.Collector.
func (s *Sinks) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{deliveredDesc, failuresDesc, deadDesc, waitingDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Sinks) Collect(ch chan<- prometheus.Metric) {
	for name, v := range s.statuses() {
		ch <- prometheus.MustNewConstMetric(deliveredDesc, prometheus.CounterValue, float64(v.GetDelivered()), name)
		ch <- prometheus.MustNewConstMetric(failuresDesc, prometheus.CounterValue, float64(v.GetFailures()), name)
		ch <- prometheus.MustNewConstMetric(deadDesc, prometheus.GaugeValue, float64(v.GetDeadLetters()), name)
		ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, s.waiting(v).Seconds(), name)
	}
}

// Failing are the sinks whose last attempt failed, by their ids: why, and since when events wait.
func (s *Sinks) Failing() map[string]*vedettev1.DeliveryStatus {
	all := s.statuses()
	for name, v := range all {
		if v.GetMessage() == "" {
			delete(all, name)
		}
	}
	return all
}

// statuses are those of all sinks by their ids.
func (s *Sinks) statuses() map[string]*vedettev1.DeliveryStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]*vedettev1.DeliveryStatus{}
	for _, e := range s.entries {
		all[id(e.sink)] = e.status.view(e.sink.GetDisabled())
	}
	return all
}

func (s *Sinks) waiting(v *vedettev1.DeliveryStatus) time.Duration {
	if v.GetOldestWaitingTime() == nil {
		return 0
	}
	return max(s.cfg.Now().Sub(v.GetOldestWaitingTime().AsTime()), 0)
}
