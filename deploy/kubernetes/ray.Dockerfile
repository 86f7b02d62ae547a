# The image of ray.yaml: head, workers and the program itself. Ray wants the same Python and Ray in all of them.
#
#   docker build -f deploy/kubernetes/ray.Dockerfile -t loadramp-ray:local .
ARG RAY=2.60.0
FROM rayproject/ray:${RAY}-py312
COPY --chown=ray:users . /tmp/loadramp
RUN pip install --no-cache-dir /tmp/loadramp && rm -rf /tmp/loadramp
