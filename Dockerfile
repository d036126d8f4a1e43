FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY monitor monitor
COPY trainer trainer
COPY dashboards dashboards
COPY migrations migrations
RUN pip install --no-cache-dir '.[server,dashboards,trainer]' && useradd --create-home vitals
USER vitals
ENTRYPOINT ["vitals"]
