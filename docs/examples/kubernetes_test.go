package examples_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// TestTheKubernetesManifestsAreWhatTheyLookLike decodes them into the API's own types, which know every field, and
// checks what the fields refer to.
func TestTheKubernetesManifestsAreWhatTheyLookLike(t *testing.T) {
	text, err := os.ReadFile("kubernetes/vedette.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, settings := &appsv1.StatefulSet{}, &corev1.ConfigMap{}
	service, policy := &corev1.Service{}, &networkingv1.NetworkPolicy{}
	into := map[string]any{"Namespace": &corev1.Namespace{}, "ConfigMap": settings, "StatefulSet": set, "Service": service, "NetworkPolicy": policy}
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		v := into[kind.Kind]
		if v == nil {
			t.Fatalf("a %q, which this test does not know or has seen already", kind.Kind)
		}
		delete(into, kind.Kind)
		if err := yaml.UnmarshalStrict(doc, v); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
	}
	if len(into) > 0 {
		t.Errorf("missing: %v", into)
	}
	pod := set.Spec.Template
	for k, v := range set.Spec.Selector.MatchLabels {
		if pod.Labels[k] != v || service.Spec.Selector[k] != v || policy.Spec.PodSelector.MatchLabels[k] != v {
			t.Errorf("label %s: the set, the pods, the service and the policy do not agree", k)
		}
	}
	var volumes, ports []string
	for _, v := range pod.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, v := range set.Spec.VolumeClaimTemplates {
		volumes = append(volumes, v.Name)
	}
	if len(pod.Spec.Containers) != 3 {
		t.Errorf("%d containers, want the appliance and two sidecars", len(pod.Spec.Containers))
	}
	sockets := map[string]int{}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			ports = append(ports, p.Name)
		}
		mounted := false
		for _, m := range c.VolumeMounts {
			if !slices.Contains(volumes, m.Name) {
				t.Errorf("%s mounts %s, which there is none of", c.Name, m.Name)
			}
			mounted = mounted || m.MountPath == "/run/vedette"
		}
		if !mounted {
			t.Errorf("%s has no folder of sockets", c.Name)
		}
		s := c.SecurityContext
		if s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || len(s.Capabilities.Drop) == 0 {
			t.Errorf("%s is not confined: %+v", c.Name, s)
		}
		for _, word := range append(c.Command, strings.Fields(settings.Data["vedette.yaml"])...) {
			if i := strings.Index(word, "/run/vedette/"); i >= 0 && (c.Name != "vedette" || !strings.Contains(word, "=")) {
				sockets[word[i:]]++
			}
		}
	}
	for _, p := range service.Spec.Ports {
		if !slices.Contains(ports, p.TargetPort.StrVal) {
			t.Errorf("the service's port %s leads to %s, which no container has", p.Name, p.TargetPort.StrVal)
		}
	}
	for _, name := range []string{"ingest.sock", "infer.sock", "infer-memory.sock"} {
		if sockets["/run/vedette/"+name] < 2 {
			t.Errorf("%s is named by one side alone: %v", name, sockets)
		}
	}
}
