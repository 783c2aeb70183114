// Package validate checks the files in the directory above with the formats'
// own types. It is a module of its own, so that the program does not depend on
// those.
package validate

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The compose file is valid by compose's own schema: five servers, each with
// its own address and volume, and none with privileges.
func TestCompose(t *testing.T) {
	const file = "../compose.yaml"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	details := types.ConfigDetails{
		WorkingDir: "..", ConfigFiles: []types.ConfigFile{{Filename: file, Content: b}}, Environment: map[string]string{"POSTGRES_PASSWORD": "secret"},
	}
	p, err := loader.LoadWithContext(t.Context(), details)
	if err != nil {
		t.Fatal(err)
	}
	servers, addresses, volumes := 0, map[string]string{}, map[string]string{}
	for name, s := range p.Services {
		if !strings.HasPrefix(name, "server-") {
			continue
		}
		servers++
		if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || s.StopGracePeriod == nil {
			t.Errorf("%s: %+v", name, s)
		}
		if _, waits := s.DependsOn["database"]; !waits || s.Environment["PGPASSWORD"] == nil {
			t.Errorf("%s does not wait for the database, or has no password", name)
		}
		for _, port := range s.Ports {
			at := port.HostIP + " " + port.Published + "/" + port.Protocol
			if other := addresses[at]; other != "" {
				t.Errorf("%s and %s both publish %s", name, other, at)
			}
			addresses[at] = name
		}
		if len(s.Volumes) != 1 || volumes[s.Volumes[0].Source] != "" {
			t.Errorf("%s: volumes %+v", name, s.Volumes)
			continue
		}
		volumes[s.Volumes[0].Source] = name
	}
	if servers != 5 || p.Services["database"].HealthCheck == nil {
		t.Errorf("%d servers", servers)
	}
	details.Environment = nil
	if _, err := loader.LoadWithContext(t.Context(), details); err == nil || !strings.Contains(err.Error(), "POSTGRES_PASSWORD") {
		t.Errorf("without a password: %v", err)
	}
}

// Every object of the manifest is valid by Kubernetes' own types, without
// unknown fields, and the objects match each other.
func TestKubernetes(t *testing.T) {
	b, err := os.ReadFile("../kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sets, services := map[string]*appsv1.StatefulSet{}, map[string]*corev1.Service{}
	budgets := 0
	for _, doc := range bytes.Split(b, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		read := func(into any) {
			t.Helper()
			if err := yaml.UnmarshalStrict(doc, into); err != nil {
				t.Fatalf("%s %s: %v", kind.APIVersion, kind.Kind, err)
			}
		}
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 Service":
			s := &corev1.Service{}
			read(s)
			services[s.Name] = s
		case "apps/v1 StatefulSet":
			s := &appsv1.StatefulSet{}
			read(s)
			sets[s.Name] = s
		case "policy/v1 PodDisruptionBudget":
			read(&policyv1.PodDisruptionBudget{})
			budgets++
		default:
			t.Errorf("an object of an unknown kind: %+v", kind)
		}
	}
	if len(sets) != 2 || len(services) != 2 || budgets != 1 {
		t.Fatalf("%d sets, %d services, %d budgets", len(sets), len(services), budgets)
	}
	for name, s := range sets {
		service := services[s.Spec.ServiceName]
		if service == nil || service.Spec.Selector["app.kubernetes.io/name"] != s.Spec.Template.Labels["app.kubernetes.io/name"] ||
			s.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != s.Spec.Template.Labels["app.kubernetes.io/name"] {
			t.Errorf("%s: its labels, selector and service do not fit", name)
		}
		pod := s.Spec.Template.Spec
		if pod.SecurityContext == nil || pod.SecurityContext.RunAsNonRoot == nil || !*pod.SecurityContext.RunAsNonRoot {
			t.Errorf("%s may run as root", name)
		}
		names := map[string]bool{}
		for _, c := range pod.Containers {
			for _, p := range c.Ports {
				names[p.Name] = true
			}
			if c.SecurityContext == nil || !slices.Contains(c.SecurityContext.Capabilities.Drop, "ALL") {
				t.Errorf("%s: %s keeps capabilities", name, c.Name)
			}
			for _, m := range c.VolumeMounts {
				if !slices.ContainsFunc(s.Spec.VolumeClaimTemplates, func(v corev1.PersistentVolumeClaim) bool { return v.Name == m.Name }) {
					t.Errorf("%s mounts %s, which nobody gives it", name, m.Name)
				}
			}
		}
		for _, p := range service.Spec.Ports {
			if !names[p.TargetPort.String()] {
				t.Errorf("%s: its service leads to the port %s, which it has not", name, p.TargetPort.String())
			}
		}
	}
	if s := sets["unbloat"]; s == nil || *s.Spec.Replicas != 5 || *s.Spec.Template.Spec.TerminationGracePeriodSeconds <= 90 {
		t.Errorf("the servers: %+v", s)
	}
}
