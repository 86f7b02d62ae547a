# The tool and its simulator, for docker-compose.yml. No GPU, no model.
FROM python:3.12.8-slim-bookworm AS built
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
WORKDIR /app
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY loadramp ./loadramp
COPY scenarios ./scenarios
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12.8-slim-bookworm
WORKDIR /app
COPY scenarios ./scenarios
COPY --from=built /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && useradd --create-home ramp && mkdir /reports && chown ramp /reports
USER ramp
ENTRYPOINT ["loadramp"]
CMD ["--help"]
