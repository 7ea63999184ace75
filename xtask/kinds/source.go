package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The module k8s.io/kubernetes is read as files, never compiled: requiring it
// would pull its whole dependency tree. Its checksum is pinned here instead of
// in go.sum.
const (
	kubernetesVersion = "1.37.1"
	kubernetesSum     = "h1:LTUzSbp9n0W7649oVKBYfC48zcoD3vCk++1PZQn28q8="
)

// kubernetesSource returns the folder of the pinned k8s.io/kubernetes module,
// which the go command downloads when it is not cached yet.
func kubernetesSource() (string, error) {
	command := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@v"+kubernetesVersion)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go mod download k8s.io/kubernetes: %w", err)
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(output, &module); err != nil {
		return "", err
	}
	if module.Sum != kubernetesSum {
		return "", fmt.Errorf("k8s.io/kubernetes v%s has checksum %s, expected %s", kubernetesVersion, module.Sum, kubernetesSum)
	}
	return module.Dir, nil
}

// schemaOf is the part of an OpenAPI schema that the table keeps.
type schemaOf struct {
	Properties map[string]*schemaOf `json:"properties"`
	Required   []string             `json:"required"`
	Enum       []any                `json:"enum"`
	Default    json.RawMessage      `json:"default"`
	ListType   string               `json:"x-kubernetes-list-type"`
	ListKeys   []string             `json:"x-kubernetes-list-map-keys"`
	MapType    string               `json:"x-kubernetes-map-type"`
	Unions     json.RawMessage      `json:"x-kubernetes-unions"`
}

// readSchemas reads the schemas of every published OpenAPI v3 document.
func readSchemas(root string) (map[string]*schemaOf, error) {
	files, err := filepath.Glob(filepath.Join(root, "api/openapi-spec/v3/*.json"))
	if err != nil {
		return nil, err
	}
	schemas := map[string]*schemaOf{}
	for _, file := range files {
		var document struct {
			Components struct {
				Schemas map[string]*schemaOf `json:"schemas"`
			} `json:"components"`
		}
		if err := readJSON(file, &document); err != nil {
			return nil, err
		}
		for name, found := range document.Components.Schemas {
			schemas[name] = found
		}
	}
	return schemas, nil
}

func readJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// openAPIName gives the name under which OpenAPI publishes a type of the
// table: core.v1.Pod becomes io.k8s.api.core.v1.Pod.
func openAPIName(name string) string {
	switch group, _, _ := strings.Cut(name, "."); group {
	case "meta":
		return "io.k8s.apimachinery.pkg.apis." + name
	case "apiextensions":
		return "io.k8s.apiextensions-apiserver.pkg.apis." + name
	case "apiregistration":
		return "io.k8s.kube-aggregator.pkg.apis." + name
	default:
		return "io.k8s.api." + name
	}
}
